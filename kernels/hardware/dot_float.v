// Floats without a shared scale, bfloat16 for one, in an aligned integer tree: every lane needs an
// exponent adder and a shifter, and all lanes together a maximum.

module dot_float #(
    parameter LANES = 32,
    parameter EXPONENT = 8,
    parameter MANTISSA = 7,
    parameter SPECIALS = 2,
    parameter GUARD = 0,
    parameter OFFSET = 268
) (
    input [LANES*(1+EXPONENT+MANTISSA)-1:0] a,
    input [LANES*(1+EXPONENT+MANTISSA)-1:0] b,
    input [31:0] acc,
    output [31:0] result
);
  localparam SUM = 2 * MANTISSA + 2 + GUARD + 1 + $clog2(LANES);
  wire [SUM-1:0] sum;
  wire [EXPONENT:0] exponent;
  wire nan;

  float_lanes #(
      .LANES(LANES),
      .EXPONENT(EXPONENT),
      .MANTISSA(MANTISSA),
      .SPECIALS(SPECIALS),
      .GUARD(GUARD)
  ) lanes (
      .a(a),
      .b(b),
      .sum(sum),
      .exponent(exponent),
      .nan(nan)
  );
  finish #(.WIDTH(SUM), .EXPONENT(EXPONENT + 1), .OFFSET(OFFSET)) finish (
      .sums(sum),
      .exponents(exponent),
      .nan(nan),
      .acc(acc),
      .result(result)
  );
endmodule
