# mgopt -functionalize -dce -decompose -simplify -dce -fused
# Sums of everything and of rows walk the same memory in one kernel; sums of columns are another.
%1 = input f32[64,100]
%2 = aten::sum(%1) : f32[]
%3 = aten::sum.dim_IntList(%1, [0], False) : f32[100]
%4 = aten::mean.dim(%1, [-1], False) : f32[64]
return %2, %3, %4
