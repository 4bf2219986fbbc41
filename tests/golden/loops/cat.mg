# mgopt -functionalize -dce -decompose -simplify -dce -loops
# Parts of a concatenation are computed where they are stored.
%1 = input f32[6,4]
%2 = input f32[6,10]
%3 = aten::relu(%2) : f32[6,10]
%4 = aten::cat([%1, %3], 1) : f32[6,14]
return %4
