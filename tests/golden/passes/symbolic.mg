# mgopt -infer -dce
# Sizes are expressions of run-time sizes; dead nodes go, random ones stay.
symbol s0 = 4 in [2, 1024]
%1 = input f32[s0,64]
%2 = input f32[64,32]
%3 = aten::mm(%1, %2) : f32[s0,32]
%4 = aten::view(%3, [s0, 4, 8]) : f32[s0,4,8]
%5 = aten::transpose.int(%4, 0, 1) : f32[4,s0,8]{8,32,1}
%6 = aten::cat([%1, %1], 0) : f32[mul(s0, 2),64]
%7 = aten::rand([3]) : f32[3]
return %5
