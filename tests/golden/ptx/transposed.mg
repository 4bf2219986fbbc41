# mgopt -functionalize -dce -decompose -simplify -dce -ptx
# A copy into another order goes through tiles in shared memory.
%1 = input f32[2,64,48]@cuda:0
%2 = aten::transpose.int(%1, 1, 2) : f32[2,48,64]{3072,1,48}@cuda:0
%3 = aten::clone(%2, memory_format=memory_format(0)) : f32[2,48,64]@cuda:0
return %3
