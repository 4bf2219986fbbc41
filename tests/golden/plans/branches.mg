# mgopt -functionalize -dce -decompose -simplify -layout -dce -plan
# Backward of three linear layers on a GPU: weight gradients run beside the chain.
%1 = input f32[64,256]@cuda:0
%2 = input f32[256,256]@cuda:0
%3 = input f32[256,256]@cuda:0
%4 = input f32[64,256]@cuda:0
%5 = input f32[64,256]@cuda:0
%6 = input f32[64,256]@cuda:0
%7 = aten::t(%1) : f32[256,64]{1,256}@cuda:0
%8 = aten::mm(%1, %2) : f32[64,256]@cuda:0
%9 = aten::mm(%7, %4) : f32[256,256]@cuda:0
%10 = aten::threshold_backward(%8, %4, 0) : f32[64,256]@cuda:0
%11 = aten::t(%10) : f32[256,64]{1,256}@cuda:0
%12 = aten::mm(%10, %3) : f32[64,256]@cuda:0
%13 = aten::mm(%11, %5) : f32[256,256]@cuda:0
%14 = aten::threshold_backward(%12, %5, 0) : f32[64,256]@cuda:0
%15 = aten::t(%14) : f32[256,64]{1,256}@cuda:0
%16 = aten::mm(%15, %6) : f32[256,256]@cuda:0
%17 = aten::mul.Scalar(%9, 2.0) : f32[256,256]@cuda:0
return %16, %13, %17
