# mgopt -functionalize -dce -decompose -simplify -dce -ptx
# Sums of everything, of columns and of rows.
%1 = input f32[64,100]@cuda:0
%2 = aten::sum(%1) : f32[]@cuda:0
%3 = aten::sum.dim_IntList(%1, [0], False) : f32[100]@cuda:0
%4 = aten::mean.dim(%1, [-1], False) : f32[64]@cuda:0
return %2, %3, %4
