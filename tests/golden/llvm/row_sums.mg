# mgopt -functionalize -dce -decompose -simplify -dce -llvm
# A reduction along memory: vectors of partial sums, then a tree, then the rest of the row.
%1 = input f32[64,100]
%2 = aten::sum.dim_IntList(%1, [-1], False) : f32[64]
return %2
