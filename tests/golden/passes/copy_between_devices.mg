# mgopt -functionalize -dce -decompose -simplify -dce
# What is copied into a tensor of another device moves there first.
%1 = input f64[]
%2 = input f32[3,4]@cuda:0
%5 = input f32[]
%3 = aten::mul.Scalar(%1, 2.0) : f64[]
%6 = aten::select.int(%2, 0, 1) : f32[4]{1}+4@cuda:0
%4 = aten::copy_(%6, %3, False) : f32[4]{1}+4@cuda:0
%7 = aten::sum(%2) : f32[]@cuda:0
%8 = aten::copy_(%5, %7, False) : f32[]
return %3
