# mgopt -functionalize -dce -decompose -simplify -dce -llvm
# Every third element: vectors that lie in a row, of which the lanes take theirs.
%1 = input f32[4,300]
%2 = aten::slice.Tensor(%1, 1, 0, 300, 3) : f32[4,100]{300,3}
%3 = aten::relu(%2) : f32[4,100]
return %3
