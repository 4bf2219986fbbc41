# mgopt -functionalize -dce
# cuDNN's batch norm writes running statistics, too; what it keeps for its own backward pass is empty.
%1 = input f32[16,64,32,32]{65536,1,2048,64}@cuda:0
%2 = input f32[64]@cuda:0
%3 = input f32[64]@cuda:0
%4 = input f32[64]@cuda:0
%5 = input f32[64]@cuda:0
%9 = input f32[16,64,32,32]{65536,1,2048,64}@cuda:0
%6, %7, %8, %16 = aten::cudnn_batch_norm(%1, %2, %3, %4, %5, True, 0.1, 1e-05) : f32[16,64,32,32]{65536,1,2048,64}@cuda:0, f32[64]@cuda:0, f32[64]@cuda:0, u8[0]@cuda:0
%10 = aten::relu(%6) : f32[16,64,32,32]{65536,1,2048,64}@cuda:0
%11 = aten::threshold_backward(%9, %10, 0) : f32[16,64,32,32]{65536,1,2048,64}@cuda:0
%12, %13, %14 = aten::cudnn_batch_norm_backward(%1, %11, %2, %4, %5, %7, %8, 1e-05, %16) : f32[16,64,32,32]{65536,1,2048,64}@cuda:0, f32[64]@cuda:0, f32[64]@cuda:0
return %10, %12, %13, %14, %16
