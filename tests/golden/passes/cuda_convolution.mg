# mgopt -functionalize -dce -decompose -simplify -layout -dce
# A convolution of a GPU and its gradients: filters are turned once, gradients are two calls.
%1 = input f32[16,64,32,32]@cuda:0
%2 = input f32[64,64,3,3]@cuda:0
%3 = input f32[16,64,32,32]@cuda:0
%4 = aten::convolution(%1, %2, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1) : f32[16,64,32,32]@cuda:0
%9 = aten::mul.Tensor(%3, %4) : f32[16,64,32,32]@cuda:0
%5, %6, _ = aten::convolution_backward(%9, %1, %2, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False]) : f32[16,64,32,32]@cuda:0, f32[64,64,3,3]@cuda:0, _
%7 = aten::mul.Scalar(%6, 0.1) : f32[64,64,3,3]@cuda:0
%8 = aten::sub.Tensor(%2, %7, alpha=1) : f32[64,64,3,3]@cuda:0
return %5, %8
