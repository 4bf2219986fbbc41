# mgopt -functionalize -dce -decompose -simplify -dce -plan
# With symbols nothing is placed before the run.
symbol s0 = 8 in [2, 1099511627776]
symbol s1 = 100 in [2, 1099511627776]
%1 = input f32[s0,s1]
%2 = aten::mul.Tensor(%1, 2) : f32[s0,s1]
%3 = aten::_softmax(%2, -1, False) : f32[s0,s1]
%4 = aten::slice.Tensor(%3, 1, 0, floordiv(s0, 2), 1) : f32[s0,min(floordiv(s0, 2), s1)]{s1,1}
%5 = aten::sum.dim_IntList(%4, [0], False) : f32[min(floordiv(s0, 2), s1)]
return %5
