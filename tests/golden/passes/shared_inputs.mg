# mgopt -functionalize
# Two inputs in one memory that is written: refused.
%1 = input f32[8]
%2 = input f32[8]+4 of %1
%3 = aten::add_.Tensor(%1, 1) : f32[8]
return %2
