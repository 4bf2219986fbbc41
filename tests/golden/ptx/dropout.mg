# mgopt -functionalize -dce -decompose -simplify -dce -ptx
# Numbers come by fours: two counters for the eight neighbours of a thread. The second mask takes the next four.
%1 = input bf16[4096,64]@cuda:0
%2 = aten::neg(%1) : bf16[4096,64]@cuda:0
%3, %4 = aten::native_dropout(%2, 0.25, True) : bf16[4096,64]@cuda:0, bool[4096,64]@cuda:0
%5, %6 = aten::native_dropout(%3, 0.5, True) : bf16[4096,64]@cuda:0, bool[4096,64]@cuda:0
return %5, %4
