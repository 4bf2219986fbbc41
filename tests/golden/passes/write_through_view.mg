# mgopt -functionalize -dce
# A write to a view of an input reaches the input and every other view of it.
%1 = input f32[4,4]
%2 = aten::slice.Tensor(%1, 0, 1, 3) : f32[2,4]+4
%3 = aten::t(%2) : f32[4,2]{1,4}+4
%4 = aten::add_.Tensor(%3, 1.5) : f32[4,2]{1,4}+4
%5 = aten::select.int(%1, 1, 0) : f32[4]{4}
%6 = aten::sum(%5) : f32[]
return %6, %2
