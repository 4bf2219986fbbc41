# mgopt -functionalize -dce -decompose -simplify -dce -loops
# A copy into another order: the store runs along the last index, the load does not.
%1 = input f32[2,64,48]
%2 = aten::transpose.int(%1, 1, 2) : f32[2,48,64]{3072,1,48}
%3 = aten::clone(%2, memory_format=memory_format(0)) : f32[2,48,64]
return %3
