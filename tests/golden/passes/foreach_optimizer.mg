# mgopt -functionalize -decompose -dce
# A step of SGD with momentum, as torch.optim's foreach path records it.
%1 = input f32[4]
%2 = input f32[2,2]
%3 = input f32[4]
%4 = input f32[2,2]
%5 = input f32[4]
%6 = input f32[2,2]
aten::_foreach_mul_.Scalar([%5, %6], 0.9)
aten::_foreach_add_.List([%5, %6], [%3, %4])
aten::_foreach_add_.List([%1, %2], [%5, %6], alpha=-0.01)
return %1
