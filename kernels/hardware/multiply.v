// The multipliers. Each is a module of its own, so that synthesis works on one instead of on all
// lanes at once (which takes minutes), and so that its gates can be counted apart.

module multiply_unsigned #(
    parameter A = 8,
    parameter B = 8
) (
    input [A-1:0] a,
    input [B-1:0] b,
    output [A+B-1:0] product
);
  assign product = a * b;
endmodule

// Two's complement, A and B at least 2. A sign bit weighs minus one power of two, so it takes the
// other operand away instead of adding it. Written as a product of signed numbers, synthesis would
// extend both signs first and make a multiplier a fifth larger, which would be held against MXINT.
module multiply_signed #(
    parameter A = 8,
    parameter B = 8
) (
    input [A-1:0] a,
    input [B-1:0] b,
    output [A+B-1:0] product
);
  wire [A+B-3:0] low = a[A-2:0] * b[B-2:0];
  wire both = a[A-1] & b[B-1];
  wire [B-2:0] a_takes = b[B-2:0] & {B - 1{a[A-1]}};
  wire [A-2:0] b_takes = a[A-2:0] & {A - 1{b[B-1]}};

  assign product = {1'b0, both, low} - (a_takes << (A - 1)) - (b_takes << (B - 1));
endmodule
