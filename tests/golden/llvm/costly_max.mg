# mgopt -functionalize -dce -decompose -simplify -dce -llvm
# The logarithm is emitted once: its operations count where copies for several accumulators are chosen.
%1 = input f32[8192]
%2 = aten::log10(%1) : f32[8192]
%3 = aten::max(%2) : f32[]
return %2, %3
