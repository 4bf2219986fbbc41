# mgopt -functionalize -dce -decompose -simplify -dce -ptx
# Scatters are calls on a GPU, and so is what is computed for them alone.
%1 = input f32[10,4]@cuda:0
%2 = input i64[6,4]@cuda:0
%3 = input f32[6,4]@cuda:0
%4 = aten::mul.Tensor(%3, 2) : f32[6,4]@cuda:0
%5 = aten::scatter_add(%1, 0, %2, %4) : f32[10,4]@cuda:0
return %5
