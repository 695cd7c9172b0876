// The lanes of numbers that have exponents: floats, and powers of two.
//
// ALIGNED says what the exponents are for. 1: aligned_sum, which compares them, and wants zero for a
// product of zero. 0: shifted_sum, which takes them as distances, counted from the smallest one.
// MANTISSA 0 says powers of two.

module float_lanes #(
    parameter LANES = 32,
    parameter EXPONENT = 8,
    parameter MANTISSA = 7,
    parameter ALIGNED = 1,
    parameter SPECIALS = 2,
    parameter GUARD = 8,
    parameter TERM = MANTISSA ? 2 * MANTISSA + 2 : 1,
    parameter OUT = TERM + GUARD + 1 + $clog2(LANES)
) (
    input [LANES*(1+EXPONENT+MANTISSA)-1:0] a,
    input [LANES*(1+EXPONENT+MANTISSA)-1:0] b,
    output [OUT-1:0] sum,
    output [EXPONENT:0] exponent,
    output nan
);
  localparam CODE = 1 + EXPONENT + MANTISSA;
  wire [LANES*TERM-1:0] terms;
  wire [LANES-1:0] negative;
  wire [LANES*(EXPONENT+1)-1:0] exponents;
  wire [LANES-1:0] nans;

  genvar i;
  generate
    for (i = 0; i < LANES; i = i + 1) begin : lane
      if (MANTISSA) begin : float
        float_product #(
            .EXPONENT(EXPONENT),
            .MANTISSA(MANTISSA),
            .SPECIALS(SPECIALS),
            .ALIGNED(ALIGNED)
        ) product (
            .a(a[i*CODE+:CODE]),
            .b(b[i*CODE+:CODE]),
            .term(terms[i*TERM+:TERM]),
            .negative(negative[i]),
            .exponent(exponents[i*(EXPONENT+1)+:EXPONENT+1]),
            .nan(nans[i])
        );
      end else begin : power
        assign nans[i] = 1'b0;
        log_product #(.EXPONENT(EXPONENT), .ALIGNED(ALIGNED)) product (
            .a(a[i*CODE+:CODE]),
            .b(b[i*CODE+:CODE]),
            .term(terms[i]),
            .negative(negative[i]),
            .exponent(exponents[i*(EXPONENT+1)+:EXPONENT+1])
        );
      end
    end

    if (ALIGNED) begin : align
      aligned_sum #(.TERMS(LANES), .WIDTH(TERM), .EXPONENT(EXPONENT + 1), .GUARD(GUARD)) add (
          .terms(terms),
          .negative(negative),
          .exponents(exponents),
          .sum(sum),
          .maximum(exponent)
      );
    end else begin : shift
      shifted_sum #(.TERMS(LANES), .WIDTH(TERM), .EXPONENT(EXPONENT + 1), .RANGE(GUARD)) add (
          .terms(terms),
          .negative(negative),
          .exponents(exponents),
          .sum(sum)
      );
      assign exponent = {EXPONENT + 1{1'b0}};
    end
  endgenerate

  assign nan = |nans;
endmodule

// A code's fields, with the implicit one made explicit. A subnormal has none and the exponent of
// the smallest normal. SPECIALS says which codes are no finite numbers: 0 none, 1 the code of all
// ones (E4M3), 2 the whole last exponent (IEEE; its infinities count as NaN here).
(* keep_hierarchy *)
module decode_float #(
    parameter EXPONENT = 8,
    parameter MANTISSA = 7,
    parameter SPECIALS = 2,
    parameter ALIGNED = 1
) (
    input [EXPONENT+MANTISSA:0] code,
    output negative,
    output [EXPONENT-1:0] exponent,
    output [MANTISSA:0] significand,
    output nan
);
  wire [EXPONENT-1:0] field = code[MANTISSA+:EXPONENT];
  wire [MANTISSA-1:0] fraction = code[MANTISSA-1:0];
  wire normal = |field;

  assign negative = code[EXPONENT+MANTISSA];
  assign exponent = ALIGNED ? {field[EXPONENT-1:1], field[0] | ~normal} : field - normal;
  assign significand = {normal, fraction};
  assign nan = SPECIALS == 2 ? &field : SPECIALS == 1 ? (&field) & (&fraction) : 1'b0;
endmodule

// The exact product of two floats. Zero is seen at the operands, beside the multiplier.
(* keep_hierarchy *)
module float_product #(
    parameter EXPONENT = 8,
    parameter MANTISSA = 7,
    parameter SPECIALS = 2,
    parameter ALIGNED = 1
) (
    input [EXPONENT+MANTISSA:0] a,
    input [EXPONENT+MANTISSA:0] b,
    output [2*MANTISSA+1:0] term,
    output negative,
    output [EXPONENT:0] exponent,
    output nan
);
  wire a_negative, b_negative, a_nan, b_nan;
  wire [EXPONENT-1:0] a_exponent, b_exponent;
  wire [MANTISSA:0] a_significand, b_significand;

  decode_float #(
      .EXPONENT(EXPONENT),
      .MANTISSA(MANTISSA),
      .SPECIALS(SPECIALS),
      .ALIGNED(ALIGNED)
  ) decode_a (
      .code(a),
      .negative(a_negative),
      .exponent(a_exponent),
      .significand(a_significand),
      .nan(a_nan)
  );
  decode_float #(
      .EXPONENT(EXPONENT),
      .MANTISSA(MANTISSA),
      .SPECIALS(SPECIALS),
      .ALIGNED(ALIGNED)
  ) decode_b (
      .code(b),
      .negative(b_negative),
      .exponent(b_exponent),
      .significand(b_significand),
      .nan(b_nan)
  );
  multiply_unsigned #(.A(MANTISSA + 1), .B(MANTISSA + 1)) multiply (
      .a(a_significand),
      .b(b_significand),
      .product(term)
  );

  wire zero = ~(|a_significand) | ~(|b_significand);
  wire [EXPONENT:0] total = a_exponent + b_exponent;
  assign negative = a_negative ^ b_negative;
  assign exponent = ALIGNED && zero ? {EXPONENT + 1{1'b0}} : total;
  assign nan = a_nan | b_nan;
endmodule

// Powers of two, the exponent zero for zero: a product adds exponents, and is 1 or 0 there.
(* keep_hierarchy *)
module log_product #(
    parameter EXPONENT = 3,
    parameter ALIGNED = 0
) (
    input [EXPONENT:0] a,
    input [EXPONENT:0] b,
    output term,
    output negative,
    output [EXPONENT:0] exponent
);
  wire [EXPONENT-1:0] a_field = a[EXPONENT-1:0];
  wire [EXPONENT-1:0] b_field = b[EXPONENT-1:0];
  wire [EXPONENT:0] total = a_field + b_field;

  assign term = (|a_field) & (|b_field);
  assign negative = a[EXPONENT] ^ b[EXPONENT];
  assign exponent = ALIGNED ? (term ? total : {EXPONENT + 1{1'b0}}) : total - 2;
endmodule
