// For yosys' techmap: a full adder of which an input is constant is a half adder, or nothing.

(* techmap_celltype = "full_adder" *)
module constant_input #(
    parameter _TECHMAP_CONSTMSK_a_ = 1'b0,
    parameter _TECHMAP_CONSTMSK_b_ = 1'b0,
    parameter _TECHMAP_CONSTMSK_c_ = 1'b0
) (
    input a,
    input b,
    input c,
    output carry,
    output sum
);
  wire _TECHMAP_FAIL_ = ~(_TECHMAP_CONSTMSK_a_ | _TECHMAP_CONSTMSK_b_ | _TECHMAP_CONSTMSK_c_);
  assign carry = (a & b) | (c & (a | b));
  assign sum = a ^ b ^ c;
endmodule
