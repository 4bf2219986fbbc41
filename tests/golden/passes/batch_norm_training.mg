# mgopt -functionalize -dce
# The running statistics are written although the schema does not say so.
%1 = input f32[2,3,4,4]
%2 = input f32[3]
%3 = input f32[3]
%4 = input f32[3]
%5 = input f32[3]
%6, %7, %8 = aten::native_batch_norm(%1, %2, %3, %4, %5, True, 0.1, 1e-05) : f32[2,3,4,4], f32[3], f32[3]
return %6
