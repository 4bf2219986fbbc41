# mgopt -functionalize -dce -decompose -simplify -dce -llvm
# The copy is in vectors; the scatter is serial, because two indices may be equal.
%1 = input f32[10,4]
%2 = input i64[6,4]
%3 = input f32[6,4]
%4 = aten::mul.Tensor(%3, 2) : f32[6,4]
%5 = aten::scatter_add(%1, 0, %2, %4) : f32[10,4]
return %5
