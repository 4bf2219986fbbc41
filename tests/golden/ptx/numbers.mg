# mgopt -functionalize -dce -decompose -simplify -dce -ptx
# A step count of the CPU: what is computed of it is a parameter.
%1 = input f32[]
%2 = input f32[4096]@cuda:0
%3 = aten::add.Scalar(%1, 1, alpha=1) : f32[]
%4 = aten::_to_copy(%3, dtype=dtype(f64)) : f64[]
%5 = aten::pow.Scalar(0.9, %4) : f64[]
%6 = aten::rsub.Scalar(%5, 1.0, 1) : f64[]
%7 = aten::div.Tensor(%2, %6) : f32[4096]@cuda:0
return %7
writeback %1 = %3
