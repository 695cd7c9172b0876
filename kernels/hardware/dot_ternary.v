// Ternary numbers, {negative, nonzero}: a sign and a mask. The products of +1 are counted together
// with those that are not -1, which are LANES more than the sum. The result is the exact integer;
// the scale is one for a whole row.

module dot_ternary #(
    parameter LANES = 32
) (
    input [LANES*2-1:0] a,
    input [LANES*2-1:0] b,
    output signed [$clog2(LANES+1):0] result
);
  wire [LANES-1:0] plus;
  wire [LANES-1:0] no_minus;
  wire [$clog2(LANES+1):0] count;

  genvar i;
  generate
    for (i = 0; i < LANES; i = i + 1) begin : lane
      multiply_ternary multiply (
          .a(a[i*2+:2]),
          .b(b[i*2+:2]),
          .plus(plus[i]),
          .no_minus(no_minus[i])
      );
    end
  endgenerate

  popcount #(.TERMS(2 * LANES)) ones (
      .bits({no_minus, plus}),
      .count(count)
  );
  assign result = count - LANES;
endmodule

module multiply_ternary (
    input [1:0] a,
    input [1:0] b,
    output plus,
    output no_minus
);
  wire nonzero = a[0] & b[0];
  wire negative = a[1] ^ b[1];
  assign plus = nonzero & ~negative;
  assign no_minus = ~(nonzero & negative);
endmodule
