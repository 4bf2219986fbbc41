# mgopt -functionalize -dce
# An op that the table does not know and that writes its argument runs on a copy.
extern my::scale_(Tensor(a!) x, float by, *, str mode="fast") -> Tensor(a!)
%1 = input f32[2,2]
%2 = my::scale_(%1, 2.0, mode="slow \"x\"") : f32[2,2]
%3 = aten::add.Tensor(%1, inf) : f32[2,2]
return %3
