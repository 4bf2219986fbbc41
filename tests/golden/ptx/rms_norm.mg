# mgopt -functionalize -dce -decompose -simplify -dce -ptx
# bfloat16 is widened when loaded and rounded when stored.
%1 = input bf16[6,64]@cuda:0
%2 = input bf16[64]@cuda:0
%3 = aten::_to_copy(%1, dtype=dtype(f32)) : f32[6,64]@cuda:0
%4 = aten::pow.Tensor_Scalar(%3, 2) : f32[6,64]@cuda:0
%5 = aten::mean.dim(%4, [-1], True) : f32[6,1]@cuda:0
%6 = aten::add.Tensor(%5, 1e-05) : f32[6,1]@cuda:0
%7 = aten::rsqrt(%6) : f32[6,1]@cuda:0
%8 = aten::mul.Tensor(%7, %1) : f32[6,64]@cuda:0
%9 = aten::_to_copy(%8, dtype=dtype(bf16)) : bf16[6,64]@cuda:0
%10 = aten::mul.Tensor(%9, %2) : bf16[6,64]@cuda:0
return %10
