// The exact product of two codes that have exponents, as a signed integer times a power of two.
//
// FORM says what a code holds: 0 a mantissa behind an implicit one, 1 a mantissa and no implicit one
// (a denormal minifloat), 2 no mantissa (a logarithmic number). ALIGNED says what the exponents are
// for. 1: aligned_sum, which compares them, and wants zero for a product of zero. 0: shifted_sum,
// which takes them as distances, counted from the smallest one.

// A code's fields, with the implicit one made explicit. A subnormal has none and the exponent of
// the smallest normal. SPECIALS says which codes are no finite numbers: 0 none, 1 the code of all
// ones (E4M3), 2 the whole last exponent (IEEE; its infinities count as NaN here).
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

// The multiplier of sign-magnitude operands: the sign is applied after the product.
module multiply_sign_magnitude #(
    parameter MANTISSA = 8
) (
    input a_negative,
    input [MANTISSA-1:0] a,
    input b_negative,
    input [MANTISSA-1:0] b,
    output signed [2*MANTISSA:0] term
);
  wire [2*MANTISSA-1:0] magnitude;

  multiply_unsigned #(.A(MANTISSA), .B(MANTISSA)) multiply (
      .a(a),
      .b(b),
      .product(magnitude)
  );
  apply_sign #(.WIDTH(2 * MANTISSA)) sign (
      .negative(a_negative ^ b_negative),
      .magnitude(magnitude),
      .term(term)
  );
endmodule

// Sign and magnitude as two's complement, which is what an adder tree adds.
module apply_sign #(
    parameter WIDTH = 16
) (
    input negative,
    input [WIDTH-1:0] magnitude,
    output signed [WIDTH:0] term
);
  assign term = negative ? -{1'b0, magnitude} : {1'b0, magnitude};
endmodule

// Zero is seen at the operands, beside the multiplier and not behind it.
module float_product #(
    parameter EXPONENT = 8,
    parameter MANTISSA = 7,
    parameter SPECIALS = 2,
    parameter ALIGNED = 1
) (
    input [EXPONENT+MANTISSA:0] a,
    input [EXPONENT+MANTISSA:0] b,
    output signed [2*MANTISSA+2:0] term,
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
  multiply_sign_magnitude #(.MANTISSA(MANTISSA + 1)) multiply (
      .a_negative(a_negative),
      .a(a_significand),
      .b_negative(b_negative),
      .b(b_significand),
      .term(term)
  );

  wire zero = ~(|a_significand) | ~(|b_significand);
  wire [EXPONENT:0] total = a_exponent + b_exponent;
  assign exponent = ALIGNED && zero ? {EXPONENT + 1{1'b0}} : total;
  assign nan = a_nan | b_nan;
endmodule

// Without an implicit one there is nothing to decode.
module denormal_product #(
    parameter EXPONENT = 4,
    parameter MANTISSA = 3,
    parameter ALIGNED = 1
) (
    input [EXPONENT+MANTISSA:0] a,
    input [EXPONENT+MANTISSA:0] b,
    output signed [2*MANTISSA:0] term,
    output [EXPONENT:0] exponent
);
  multiply_sign_magnitude #(.MANTISSA(MANTISSA)) multiply (
      .a_negative(a[EXPONENT+MANTISSA]),
      .a(a[MANTISSA-1:0]),
      .b_negative(b[EXPONENT+MANTISSA]),
      .b(b[MANTISSA-1:0]),
      .term(term)
  );

  wire zero = ~(|a[MANTISSA-1:0]) | ~(|b[MANTISSA-1:0]);
  wire [EXPONENT:0] total = a[MANTISSA+:EXPONENT] + b[MANTISSA+:EXPONENT];
  assign exponent = ALIGNED && zero ? {EXPONENT + 1{1'b0}} : total;
endmodule

// Powers of two, the exponent zero for zero: a product adds exponents, and is +1, -1 or 0 there.
module log_product #(
    parameter EXPONENT = 7,
    parameter ALIGNED = 1
) (
    input [EXPONENT:0] a,
    input [EXPONENT:0] b,
    output signed [1:0] term,
    output [EXPONENT:0] exponent
);
  // [log]
  wire [EXPONENT-1:0] a_field = a[EXPONENT-1:0];
  wire [EXPONENT-1:0] b_field = b[EXPONENT-1:0];
  wire nonzero = (|a_field) & (|b_field);
  wire [EXPONENT:0] total = a_field + b_field;

  assign term = {nonzero & (a[EXPONENT] ^ b[EXPONENT]), nonzero};
  assign exponent = ALIGNED ? (nonzero ? total : {EXPONENT + 1{1'b0}}) : total - 2;
  // [/log]
endmodule
