# mgopt -functionalize -dce -decompose -simplify -dce
# Equal calls of attention with dropout draw other numbers each; without dropout they are one.
%1 = input f32[2,4,8,16]@cuda:0
%2, %3, %4, %5 = aten::_scaled_dot_product_efficient_attention(%1, %1, %1, None, False, 0.5, False, scale=None) : f32[2,4,8,16]{512,16,64,1}@cuda:0, f32[2,4,0]@cuda:0, i64[], i64[]
%6, %7, %8, %9 = aten::_scaled_dot_product_efficient_attention(%1, %1, %1, None, False, 0.5, False, scale=None) : f32[2,4,8,16]{512,16,64,1}@cuda:0, f32[2,4,0]@cuda:0, i64[], i64[]
%10 = aten::sub.Tensor(%2, %6) : f32[2,4,8,16]{512,16,64,1}@cuda:0
%11, %12, %13, %14 = aten::_scaled_dot_product_efficient_attention(%1, %1, %1, None, False, 0.0, False, scale=None) : f32[2,4,8,16]{512,16,64,1}@cuda:0, f32[2,4,0]@cuda:0, i64[], i64[]
%15, %16, %17, %18 = aten::_scaled_dot_product_efficient_attention(%1, %1, %1, None, False, 0.0, False, scale=None) : f32[2,4,8,16]{512,16,64,1}@cuda:0, f32[2,4,0]@cuda:0, i64[], i64[]
%19 = aten::sub.Tensor(%11, %15) : f32[2,4,8,16]{512,16,64,1}@cuda:0
return %10, %19
