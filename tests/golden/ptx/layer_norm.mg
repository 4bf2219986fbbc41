# mgopt -functionalize -dce -decompose -simplify -dce -ptx
# A row is loaded once, in vectors of four.
%1 = input f32[8,96]@cuda:0
%2 = input f32[8,96]@cuda:0
%3 = input f32[96]@cuda:0
%4 = input f32[96]@cuda:0
%5 = aten::add.Tensor(%1, %2) : f32[8,96]@cuda:0
%6, %7, %8 = aten::native_layer_norm(%5, [96], %3, %4, 1e-05) : f32[8,96]@cuda:0, f32[8,1]@cuda:0, f32[8,1]@cuda:0
return %5, %6
