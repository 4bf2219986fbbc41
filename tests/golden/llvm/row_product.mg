# mgopt -functionalize -dce -decompose -simplify -dce -llvm
# four rows share one read of the vector; the last ones go one by one
%1 = input f32[1,3072]
%2 = input f32[9,3072]
%3 = input f32[9]
%4 = aten::t(%2) : f32[3072,9]{1,3072}
%5 = aten::addmm(%3, %1, %4) : f32[1,9]
return %5
