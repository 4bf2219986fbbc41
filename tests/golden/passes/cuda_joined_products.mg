# mgopt -functionalize -dce -decompose -simplify -layout -dce
# Products of one operand become one; what reads a part of it has the whole one's strides.
%1 = input bf16[8,128,768]@cuda:0
%2 = input bf16[768,768]@cuda:0
%3 = input bf16[768,768]@cuda:0
%4 = input bf16[768,768]@cuda:0
%5 = input bf16[768]@cuda:0
%6 = input bf16[768]@cuda:0
%7 = input bf16[768]@cuda:0
%60 = aten::view(%1, [1024,768]) : bf16[1024,768]@cuda:0
%410 = aten::t(%2) : bf16[768,768]{1,768}@cuda:0
%510 = aten::addmm(%5, %60, %410) : bf16[1024,768]@cuda:0
%10 = aten::view(%510, [8,128,768]) : bf16[8,128,768]@cuda:0
%11 = aten::view(%10, [8,128,12,64]) : bf16[8,128,12,64]@cuda:0
%12 = aten::transpose.int(%11, 1, 2) : bf16[8,12,128,64]{98304,64,768,1}@cuda:0
%420 = aten::t(%3) : bf16[768,768]{1,768}@cuda:0
%520 = aten::addmm(%6, %60, %420) : bf16[1024,768]@cuda:0
%20 = aten::view(%520, [8,128,768]) : bf16[8,128,768]@cuda:0
%21 = aten::view(%20, [8,128,12,64]) : bf16[8,128,12,64]@cuda:0
%22 = aten::transpose.int(%21, 1, 2) : bf16[8,12,128,64]{98304,64,768,1}@cuda:0
%430 = aten::t(%4) : bf16[768,768]{1,768}@cuda:0
%530 = aten::addmm(%7, %60, %430) : bf16[1024,768]@cuda:0
%30 = aten::view(%530, [8,128,768]) : bf16[8,128,768]@cuda:0
%31 = aten::view(%30, [8,128,12,64]) : bf16[8,128,12,64]@cuda:0
%32 = aten::transpose.int(%31, 1, 2) : bf16[8,12,128,64]{98304,64,768,1}@cuda:0
%41 = aten::add.Tensor(%12, %22) : bf16[8,12,128,64]{98304,64,768,1}@cuda:0
%42 = aten::mul.Tensor(%41, %32) : bf16[8,12,128,64]{98304,64,768,1}@cuda:0
return %42
