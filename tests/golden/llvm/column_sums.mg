# mgopt -functionalize -dce -decompose -simplify -dce -llvm
# A reduction across memory: vectors of neighbouring columns.
%1 = input f32[64,100]
%2 = aten::sum.dim_IntList(%1, [0], False) : f32[100]
return %2
