# mgopt -functionalize -dce -decompose -simplify -dce -plan
# What a call returns is its own; kernels between calls write into the arena.
%1 = input f32[6,32]
%2 = input f32[64,32]
%3 = input f32[64]
%4 = input f32[64,8]
%5 = aten::t(%2) : f32[32,64]{1,32}
%6 = aten::addmm(%3, %1, %5) : f32[6,64]
%7 = aten::gelu(%6, approximate="none") : f32[6,64]
%8 = aten::mm(%7, %4) : f32[6,8]
%9 = aten::sigmoid(%8) : f32[6,8]
return %9
