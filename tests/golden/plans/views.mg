# mgopt -functionalize -dce -decompose -simplify -dce -plan
# Outputs that share memory: one is stored, the others are views of it or of an input.
%1 = input f32[6,4]
%2 = aten::exp(%1) : f32[6,4]
%3 = aten::t(%2) : f32[4,6]{1,4}
%4 = aten::slice.Tensor(%1, 0, 1, 3, 1) : f32[2,4]{4,1}+4
%5 = aten::sum(%2) : f32[]
return %2, %3, %4, %5
