// Floating point (bfloat16, minifloats) with an aligned integer tree: every lane has an exponent,
// so every lane needs an exponent adder and a shifter, and all lanes together a maximum.

module dot_float #(
    parameter LANES = 32,
    parameter EXPONENT = 8,
    parameter MANTISSA = 7,
    parameter SPECIALS = 2,
    parameter GUARD = 8,
    parameter OFFSET = 276
) (
    input [LANES*(1+EXPONENT+MANTISSA)-1:0] a,
    input [LANES*(1+EXPONENT+MANTISSA)-1:0] b,
    output [31:0] result
);
  localparam SUM = 2 * MANTISSA + 3 + GUARD + $clog2(LANES);
  wire signed [SUM-1:0] sum;
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
  to_fp32 #(.WIDTH(SUM), .EXPONENT(EXPONENT + 1), .OFFSET(OFFSET)) convert (
      .significand(sum),
      .exponent(exponent),
      .nan(nan),
      .fp32(result)
  );
endmodule

// The lanes of one block: products, alignment, integer sum.
module float_lanes #(
    parameter LANES = 32,
    parameter EXPONENT = 8,
    parameter MANTISSA = 7,
    parameter SPECIALS = 2,
    parameter GUARD = 8
) (
    input [LANES*(1+EXPONENT+MANTISSA)-1:0] a,
    input [LANES*(1+EXPONENT+MANTISSA)-1:0] b,
    output signed [2*MANTISSA+3+GUARD+$clog2(LANES)-1:0] sum,
    output [EXPONENT:0] exponent,
    output nan
);
  localparam CODE = 1 + EXPONENT + MANTISSA;
  localparam TERM = 2 * MANTISSA + 3;
  wire [LANES*TERM-1:0] terms;
  wire [LANES*(EXPONENT+1)-1:0] exponents;
  wire [LANES-1:0] nans;

  genvar i;
  generate
    for (i = 0; i < LANES; i = i + 1) begin : lane
      float_product #(.EXPONENT(EXPONENT), .MANTISSA(MANTISSA), .SPECIALS(SPECIALS)) product (
          .a(a[i*CODE+:CODE]),
          .b(b[i*CODE+:CODE]),
          .term(terms[i*TERM+:TERM]),
          .exponent(exponents[i*(EXPONENT+1)+:EXPONENT+1]),
          .nan(nans[i])
      );
    end
  endgenerate

  aligned_sum #(.TERMS(LANES), .WIDTH(TERM), .EXPONENT(EXPONENT + 1), .GUARD(GUARD)) add (
      .terms(terms),
      .exponents(exponents),
      .sum(sum),
      .maximum(exponent)
  );
  assign nan = |nans;
endmodule
