// MXINT weights (a, signs beside magnitudes) with bfloat16 activations (b): what weight-only
// quantization asks of the hardware. The weights share a scale, the activations do not, so every lane
// keeps its shifter. All lanes are in one block.

module dot_mxint_bf16 #(
    parameter LANES = 32,
    parameter WIDTH = 8,
    parameter GUARD = 1,
    parameter OFFSET = 268
) (
    input [LANES*WIDTH-1:0] a,
    input [LANES*16-1:0] b,
    input [7:0] a_scale,
    input [31:0] acc,
    output [31:0] result
);
  localparam TERM = WIDTH + 7;
  localparam SUM = TERM + GUARD + 1 + $clog2(LANES);
  wire [LANES*TERM-1:0] terms;
  wire [LANES-1:0] negative;
  wire [LANES*8-1:0] exponents;
  wire [LANES-1:0] nans;
  wire [SUM-1:0] sum;
  wire [7:0] maximum;
  wire [8:0] exponent = maximum + a_scale;

  genvar i;
  generate
    for (i = 0; i < LANES; i = i + 1) begin : lane
      mxint_bf16_product #(.WIDTH(WIDTH)) product (
          .a(a[i*WIDTH+:WIDTH]),
          .b(b[i*16+:16]),
          .term(terms[i*TERM+:TERM]),
          .negative(negative[i]),
          .exponent(exponents[i*8+:8]),
          .nan(nans[i])
      );
    end
  endgenerate

  aligned_sum #(.TERMS(LANES), .WIDTH(TERM), .EXPONENT(8), .GUARD(GUARD)) add (
      .terms(terms),
      .negative(negative),
      .exponents(exponents),
      .sum(sum),
      .maximum(maximum)
  );
  finish #(.WIDTH(SUM), .EXPONENT(9), .OFFSET(OFFSET)) finish (
      .sums(sum),
      .exponents(exponent),
      .nan((|nans) | (&a_scale)),
      .acc(acc),
      .result(result)
  );
endmodule

(* keep_hierarchy *)
module mxint_bf16_product #(
    parameter WIDTH = 8
) (
    input [WIDTH-1:0] a,
    input [15:0] b,
    output [WIDTH+6:0] term,
    output negative,
    output [7:0] exponent,
    output nan
);
  wire b_negative;
  wire [7:0] field;
  wire [7:0] significand;

  decode_float #(.EXPONENT(8), .MANTISSA(7), .SPECIALS(2)) decode (
      .code(b),
      .negative(b_negative),
      .exponent(field),
      .significand(significand),
      .nan(nan)
  );
  multiply_unsigned #(.A(WIDTH - 1), .B(8)) multiply (
      .a(a[WIDTH-2:0]),
      .b(significand),
      .product(term)
  );

  wire zero = ~(|a[WIDTH-2:0]) | ~(|significand);
  assign negative = a[WIDTH-1] ^ b_negative;
  assign exponent = zero ? 8'd0 : field;
endmodule
