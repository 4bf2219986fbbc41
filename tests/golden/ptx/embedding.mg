# mgopt -functionalize -dce -decompose -simplify -dce -ptx
# A failed check of an index traps.
%1 = input i64[6]@cuda:0
%2 = input f32[10,16]@cuda:0
%3 = aten::embedding(%2, %1, -1, False, False) : f32[6,16]@cuda:0
%4 = aten::mul.Tensor(%3, 2) : f32[6,16]@cuda:0
return %4
