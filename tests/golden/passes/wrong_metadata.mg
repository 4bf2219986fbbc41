# mgopt -q -infer
%1 = input f32[2,3]{1,2}
%2 = input i64[3]
%3 = aten::add.Tensor(%1, %2) : f32[2,3]
%4 = aten::div.Tensor(%2, 2) : i64[3]
return %3, %4
