# mgopt -functionalize -dce
# Outputs in the memory of an input or of another output are described, not copied.
%1 = input f32[3,4]
%2 = aten::relu(%1) : f32[3,4]
%3 = aten::mul_.Tensor(%2, 2.0) : f32[3,4]
%4 = aten::select.int(%3, 0, 1) : f32[4]+4
%5 = aten::view(%1, [12]) : f32[12]
%6 = aten::relu_(%1) : f32[3,4]
return %2, %3, %4, %5, %6
