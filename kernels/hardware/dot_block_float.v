// Block floating point (MSFP): as MXINT, but an element is a sign and a MANTISSA-bit magnitude, so
// the multiplier is unsigned and the sign is applied to the product. Every code of the shared
// exponent is a number; the format has no NaN.

module dot_block_float #(
    parameter LANES = 32,
    parameter MANTISSA = 7,
    parameter BLOCK = 16,
    parameter GUARD = 3,
    parameter OFFSET = 266
) (
    input [LANES*(MANTISSA+1)-1:0] a,
    input [LANES*(MANTISSA+1)-1:0] b,
    input [LANES/BLOCK*8-1:0] a_scale,
    input [LANES/BLOCK*8-1:0] b_scale,
    output [31:0] result
);
  localparam BLOCKS = LANES / BLOCK;
  localparam ELEMENT = MANTISSA + 1;
  localparam TERM = 2 * MANTISSA + 1;
  localparam SUM = TERM + $clog2(BLOCK);
  wire [LANES*TERM-1:0] terms;
  wire [BLOCKS*SUM-1:0] sums;
  wire [BLOCKS*9-1:0] exponents;

  genvar i;
  generate
    for (i = 0; i < LANES; i = i + 1) begin : lane
      multiply_sign_magnitude #(.MANTISSA(MANTISSA)) multiply (
          .a_negative(a[i*ELEMENT+MANTISSA]),
          .a(a[i*ELEMENT+:MANTISSA]),
          .b_negative(b[i*ELEMENT+MANTISSA]),
          .b(b[i*ELEMENT+:MANTISSA]),
          .term(terms[i*TERM+:TERM])
      );
    end
    for (i = 0; i < BLOCKS; i = i + 1) begin : block
      adder_tree #(.TERMS(BLOCK), .WIDTH(TERM)) tree (
          .terms(terms[i*BLOCK*TERM+:BLOCK*TERM]),
          .sum(sums[i*SUM+:SUM])
      );
      assign exponents[i*9+:9] = a_scale[i*8+:8] + b_scale[i*8+:8];
    end
  endgenerate

  combine_blocks #(.BLOCKS(BLOCKS), .WIDTH(SUM), .EXPONENT(9), .GUARD(GUARD), .OFFSET(OFFSET))
      combine (
      .sums(sums),
      .exponents(exponents),
      .nan(1'b0),
      .fp32(result)
  );
endmodule
