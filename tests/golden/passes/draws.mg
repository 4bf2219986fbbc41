# mgopt -functionalize -dce -decompose -simplify -dce
# Draws that follow each other become one. Not fused: sizes that are no multiples of four, inputs, views, float64.
%1 = input f32[1024,1024]@cuda:0
%2 = aten::neg(%1) : f32[1024,1024]@cuda:0
%3, %4 = aten::native_dropout(%2, 0.1, True) : f32[1024,1024]@cuda:0, bool[1024,1024]@cuda:0
%5, %6 = aten::native_dropout(%3, 0.2, True) : f32[1024,1024]@cuda:0, bool[1024,1024]@cuda:0
%7 = aten::bernoulli.p(%3, 0.5, None) : f32[1024,1024]@cuda:0
%8, %9 = aten::native_dropout(%7, 0.2, True) : f32[1024,1024]@cuda:0, bool[1024,1024]@cuda:0
%10, %11 = aten::native_dropout(%1, 0.2, True) : f32[1024,1024]@cuda:0, bool[1024,1024]@cuda:0
%12 = aten::sum.dim_IntList(%1, [1], False) : f32[1024]@cuda:0
%13 = aten::slice.Tensor(%12, 0, 0, 3, 1) : f32[3]@cuda:0
%14 = aten::exp(%13) : f32[3]@cuda:0
%15, %16 = aten::native_dropout(%14, 0.2, True) : f32[3]@cuda:0, bool[3]@cuda:0
%17 = aten::_to_copy(%2, dtype=dtype(f64)) : f64[1024,1024]@cuda:0
%18, %19 = aten::native_dropout(%17, 0.2, True) : f64[1024,1024]@cuda:0, bool[1024,1024]@cuda:0
%20 = aten::t(%2) : f32[1024,1024]{1,1024}@cuda:0
%21 = aten::exp(%20) : f32[1024,1024]{1,1024}@cuda:0
%22, %23 = aten::native_dropout(%21, 0.2, True) : f32[1024,1024]{1,1024}@cuda:0, bool[1024,1024]{1,1024}@cuda:0
return %5, %8, %10, %15, %18, %22
