# mgopt -functionalize -dce -decompose -simplify -dce -llvm
# bfloat16 is widened when loaded and rounded when stored.
%1 = input bf16[6,64]
%2 = input bf16[64]
%3 = aten::_to_copy(%1, dtype=dtype(f32)) : f32[6,64]
%4 = aten::pow.Tensor_Scalar(%3, 2) : f32[6,64]
%5 = aten::mean.dim(%4, [-1], True) : f32[6,1]
%6 = aten::add.Tensor(%5, 1e-05) : f32[6,1]
%7 = aten::rsqrt(%6) : f32[6,1]
%8 = aten::mul.Tensor(%7, %1) : f32[6,64]
%9 = aten::_to_copy(%8, dtype=dtype(bf16)) : bf16[6,64]
%10 = aten::mul.Tensor(%9, %2) : bf16[6,64]
return %10
