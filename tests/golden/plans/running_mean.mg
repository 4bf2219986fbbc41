# mgopt -functionalize -dce -decompose -simplify -dce -plan
# An input that is written: the kernel that computes the value stores it there.
%1 = input f32[64,16]
%2 = input f32[16]
%3 = aten::mean.dim(%1, [0], False) : f32[16]
%4 = aten::mul_.Tensor(%2, 0.9) : f32[16]
%5 = aten::add_.Tensor(%4, %3, alpha=0.1) : f32[16]
%6 = aten::sub.Tensor(%1, %5) : f32[64,16]
return %6
