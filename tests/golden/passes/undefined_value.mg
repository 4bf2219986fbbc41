# mgopt -verify
%1 = input f32[2]
%2 = aten::add.Tensor(%1, %3) : f32[2]
return %2
