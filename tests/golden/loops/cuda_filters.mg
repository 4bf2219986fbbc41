# mgopt -functionalize -dce -decompose -simplify -layout -dce -fused
# Filters are turned by one launch before all convolutions; neighbouring threads have all places of some channels.
%1 = input f32[16,128,32,32]@cuda:0
%2 = input f32[128,128,3,3]@cuda:0
%3 = input f32[128,128,3,3]@cuda:0
%4 = input f32[128,128,3,3]@cuda:0
%9 = aten::convolution(%1, %2, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1) : f32[16,128,32,32]@cuda:0
%10 = aten::relu(%9) : f32[16,128,32,32]@cuda:0
%11 = aten::convolution(%10, %3, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1) : f32[16,128,32,32]@cuda:0
%12 = aten::relu(%11) : f32[16,128,32,32]@cuda:0
%13 = aten::convolution(%12, %4, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1) : f32[16,128,32,32]@cuda:0
%14 = aten::relu(%13) : f32[16,128,32,32]@cuda:0
return %14
