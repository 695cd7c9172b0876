// MXINT weights with bfloat16 activations: what weight-only quantization asks of the hardware.
// The weights share a scale, the activations do not, so every lane keeps its shifter.

module dot_mxint_bf16 #(
    parameter LANES = 32,
    parameter WIDTH = 8,
    parameter BLOCK = 32,
    parameter GUARD = 8,
    parameter OFFSET = 275
) (
    input [LANES*WIDTH-1:0] a,
    input [LANES*16-1:0] b,
    input [LANES/BLOCK*8-1:0] a_scale,
    output [31:0] result
);
  localparam BLOCKS = LANES / BLOCK;
  localparam TERM = WIDTH + 9;
  localparam SUM = TERM + GUARD + $clog2(LANES);
  wire [LANES*TERM-1:0] terms;
  wire [LANES*9-1:0] exponents;
  wire [LANES-1:0] nans;
  wire [BLOCKS-1:0] scale_nans;
  wire signed [SUM-1:0] sum;
  wire [8:0] maximum;
  wire [8:0] exponent;

  genvar i;
  generate
    for (i = 0; i < BLOCKS; i = i + 1) begin : block
      assign scale_nans[i] = &a_scale[i*8+:8];
    end
    for (i = 0; i < LANES; i = i + 1) begin : lane
      // with one block the scale is added to the sum, with several it must be added to each lane
      wire [7:0] scale = BLOCKS == 1 ? 8'd0 : a_scale[i/BLOCK*8+:8];
      mxint_bf16_product #(.WIDTH(WIDTH)) product (
          .a(a[i*WIDTH+:WIDTH]),
          .b(b[i*16+:16]),
          .scale(scale),
          .term(terms[i*TERM+:TERM]),
          .exponent(exponents[i*9+:9]),
          .nan(nans[i])
      );
    end
    if (BLOCKS == 1) begin : one
      assign exponent = maximum + a_scale;
    end else begin : many
      assign exponent = maximum;
    end
  endgenerate

  aligned_sum #(.TERMS(LANES), .WIDTH(TERM), .EXPONENT(9), .GUARD(GUARD)) add (
      .terms(terms),
      .exponents(exponents),
      .sum(sum),
      .maximum(maximum)
  );
  to_fp32 #(.WIDTH(SUM), .EXPONENT(9), .OFFSET(OFFSET)) convert (
      .significand(sum),
      .exponent(exponent),
      .nan((|nans) | (|scale_nans)),
      .fp32(result)
  );
endmodule

module mxint_bf16_product #(
    parameter WIDTH = 8
) (
    input signed [WIDTH-1:0] a,
    input [15:0] b,
    input [7:0] scale,
    output signed [WIDTH+8:0] term,
    output [8:0] exponent,
    output nan
);
  wire negative;
  wire [7:0] field;
  wire [7:0] significand;
  wire signed [8:0] b_signed;

  decode_float #(.EXPONENT(8), .MANTISSA(7), .SPECIALS(2)) decode (
      .code(b),
      .negative(negative),
      .exponent(field),
      .significand(significand),
      .nan(nan)
  );
  apply_sign #(.WIDTH(8)) sign (
      .negative(negative),
      .magnitude(significand),
      .term(b_signed)
  );
  multiply_signed #(.A(WIDTH), .B(9)) multiply (
      .a(a),
      .b(b_signed),
      .product(term)
  );

  wire zero = ~(|a) | ~(|significand);
  wire [8:0] total = field + scale;
  assign exponent = zero ? 9'd0 : total;
endmodule
