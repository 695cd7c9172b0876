// Numbers with exponents of their own (bfloat16, minifloats, logarithmic numbers) with an aligned
// integer tree: every lane needs an exponent adder and a shifter, and all lanes together a maximum.
// What FORM and ALIGNED say is in float_product.v.

module dot_float #(
    parameter LANES = 32,
    parameter EXPONENT = 8,
    parameter MANTISSA = 7,
    parameter FORM = 0,
    parameter SPECIALS = 2,
    parameter GUARD = 8,
    parameter OFFSET = 276
) (
    input [LANES*(1+EXPONENT+MANTISSA)-1:0] a,
    input [LANES*(1+EXPONENT+MANTISSA)-1:0] b,
    output [31:0] result
);
  localparam TERM = FORM == 0 ? 2 * MANTISSA + 3 : FORM == 1 ? 2 * MANTISSA + 1 : 2;
  localparam SUM = TERM + GUARD + $clog2(LANES);
  wire signed [SUM-1:0] sum;
  wire [EXPONENT:0] exponent;
  wire nan;

  float_lanes #(
      .LANES(LANES),
      .EXPONENT(EXPONENT),
      .MANTISSA(MANTISSA),
      .FORM(FORM),
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

// The same where the exponents are few: the sum is exact, an integer with its point in one place, and
// is the result as it is. GUARD is the largest distance of two exponents of products.
module dot_float_exact #(
    parameter LANES = 32,
    parameter EXPONENT = 2,
    parameter MANTISSA = 1,
    parameter FORM = 0,
    parameter GUARD = 4,
    parameter TERM = FORM == 0 ? 2 * MANTISSA + 3 : FORM == 1 ? 2 * MANTISSA + 1 : 2
) (
    input [LANES*(1+EXPONENT+MANTISSA)-1:0] a,
    input [LANES*(1+EXPONENT+MANTISSA)-1:0] b,
    output signed [TERM+GUARD+$clog2(LANES)-1:0] result
);
  float_lanes #(
      .LANES(LANES),
      .EXPONENT(EXPONENT),
      .MANTISSA(MANTISSA),
      .FORM(FORM),
      .ALIGNED(0),
      .SPECIALS(0),
      .GUARD(GUARD)
  ) lanes (
      .a(a),
      .b(b),
      .sum(result),
      .exponent(),
      .nan()
  );
endmodule

// The lanes of one block: products, their places, integer sum.
module float_lanes #(
    parameter LANES = 32,
    parameter EXPONENT = 8,
    parameter MANTISSA = 7,
    parameter FORM = 0,
    parameter ALIGNED = 1,
    parameter SPECIALS = 2,
    parameter GUARD = 8,
    parameter TERM = FORM == 0 ? 2 * MANTISSA + 3 : FORM == 1 ? 2 * MANTISSA + 1 : 2
) (
    input [LANES*(1+EXPONENT+MANTISSA)-1:0] a,
    input [LANES*(1+EXPONENT+MANTISSA)-1:0] b,
    output signed [TERM+GUARD+$clog2(LANES)-1:0] sum,
    output [EXPONENT:0] exponent,
    output nan
);
  localparam CODE = 1 + EXPONENT + MANTISSA;
  wire [LANES*TERM-1:0] terms;
  wire [LANES*(EXPONENT+1)-1:0] exponents;
  wire [LANES-1:0] nans;

  genvar i;
  generate
    for (i = 0; i < LANES; i = i + 1) begin : lane
      if (FORM == 0) begin : implicit
        float_product #(
            .EXPONENT(EXPONENT),
            .MANTISSA(MANTISSA),
            .SPECIALS(SPECIALS),
            .ALIGNED(ALIGNED)
        ) product (
            .a(a[i*CODE+:CODE]),
            .b(b[i*CODE+:CODE]),
            .term(terms[i*TERM+:TERM]),
            .exponent(exponents[i*(EXPONENT+1)+:EXPONENT+1]),
            .nan(nans[i])
        );
      end else begin : finite
        assign nans[i] = 1'b0;
        if (FORM == 1) begin : denormal
          denormal_product #(
              .EXPONENT(EXPONENT),
              .MANTISSA(MANTISSA),
              .ALIGNED(ALIGNED)
          ) product (
              .a(a[i*CODE+:CODE]),
              .b(b[i*CODE+:CODE]),
              .term(terms[i*TERM+:TERM]),
              .exponent(exponents[i*(EXPONENT+1)+:EXPONENT+1])
          );
        end else begin : power
          log_product #(.EXPONENT(EXPONENT), .ALIGNED(ALIGNED)) product (
              .a(a[i*CODE+:CODE]),
              .b(b[i*CODE+:CODE]),
              .term(terms[i*TERM+:TERM]),
              .exponent(exponents[i*(EXPONENT+1)+:EXPONENT+1])
          );
        end
      end
    end

    if (ALIGNED) begin : align
      aligned_sum #(.TERMS(LANES), .WIDTH(TERM), .EXPONENT(EXPONENT + 1), .GUARD(GUARD)) add (
          .terms(terms),
          .exponents(exponents),
          .sum(sum),
          .maximum(exponent)
      );
    end else begin : shift
      shifted_sum #(.TERMS(LANES), .WIDTH(TERM), .EXPONENT(EXPONENT + 1), .RANGE(GUARD)) add (
          .terms(terms),
          .exponents(exponents),
          .sum(sum)
      );
      assign exponent = {EXPONENT + 1{1'b0}};
    end
  endgenerate

  assign nan = |nans;
endmodule
