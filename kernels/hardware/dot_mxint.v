// MXINT on both sides: inside a block a dot product of integers; the scales meet once a block.
// LANES is a multiple of BLOCK. A block that is longer than the unit takes several cycles and is
// written BLOCK = LANES. SIGNS says how an element has its sign: 0 in two's complement, as OCP writes
// it; 1 beside a magnitude of WIDTH - 1 bits. SCALE_NAN says whether the scale 255 is NaN, as in MX
// formats, or a number, as in block floating point (MSFP), which is the same otherwise.

module dot_mxint #(
    parameter LANES = 32,
    parameter WIDTH = 8,
    parameter SIGNS = 0,
    parameter SCALE_NAN = 1,
    parameter BLOCK = 32,
    parameter GUARD = 3,
    parameter OFFSET = 266
) (
    input [LANES*WIDTH-1:0] a,
    input [LANES*WIDTH-1:0] b,
    input [LANES/BLOCK*8-1:0] a_scale,
    input [LANES/BLOCK*8-1:0] b_scale,
    input [31:0] acc,
    output [31:0] result
);
  localparam BLOCKS = LANES / BLOCK;
  localparam SUM = (SIGNS ? 2 * WIDTH - 1 : 2 * WIDTH) + $clog2(BLOCK);
  wire [BLOCKS*SUM-1:0] sums;
  wire [BLOCKS*9-1:0] exponents;
  wire [BLOCKS-1:0] nan;

  genvar i;
  generate
    for (i = 0; i < BLOCKS; i = i + 1) begin : block
      if (SIGNS) begin : apart
        magnitude_lanes #(.LANES(BLOCK), .MANTISSA(WIDTH - 1)) lanes (
            .a(a[i*BLOCK*WIDTH+:BLOCK*WIDTH]),
            .b(b[i*BLOCK*WIDTH+:BLOCK*WIDTH]),
            .total(sums[i*SUM+:SUM])
        );
      end else begin : complement
        integer_lanes #(.LANES(BLOCK), .WIDTH(WIDTH)) lanes (
            .a(a[i*BLOCK*WIDTH+:BLOCK*WIDTH]),
            .b(b[i*BLOCK*WIDTH+:BLOCK*WIDTH]),
            .addend({SUM{1'b0}}),
            .total(sums[i*SUM+:SUM])
        );
      end
      add_scales scales (
          .a(a_scale[i*8+:8]),
          .b(b_scale[i*8+:8]),
          .exponent(exponents[i*9+:9]),
          .nan(nan[i])
      );
    end
  endgenerate

  finish #(.BLOCKS(BLOCKS), .WIDTH(SUM), .EXPONENT(9), .GUARD(GUARD), .OFFSET(OFFSET)) finish (
      .sums(sums),
      .exponents(exponents),
      .nan(SCALE_NAN && |nan),
      .acc(acc),
      .result(result)
  );
endmodule

// The exact sum of products of numbers that have a sign beside MANTISSA bits of magnitude.
module magnitude_lanes #(
    parameter LANES = 32,
    parameter MANTISSA = 7,
    parameter OUT = 2 * MANTISSA + 1 + $clog2(LANES)
) (
    input [LANES*(MANTISSA+1)-1:0] a,
    input [LANES*(MANTISSA+1)-1:0] b,
    output [OUT-1:0] total
);
  localparam CODE = MANTISSA + 1;
  localparam LOW = 2 * MANTISSA - 1;
  localparam HIGH = MANTISSA;
  wire [LANES*LOW-1:0] low;
  wire [LANES*HIGH-1:0] high;
  wire [LANES-1:0] negative;

  genvar i;
  generate
    for (i = 0; i < LANES; i = i + 1) begin : lane
      wire [LOW-1:0] sum;
      wire [HIGH-1:0] carry;
      assign negative[i] = a[i*CODE+MANTISSA] ^ b[i*CODE+MANTISSA];
      multiply_rows #(.A(MANTISSA), .B(MANTISSA)) multiply (
          .a(a[i*CODE+:MANTISSA]),
          .b(b[i*CODE+:MANTISSA]),
          .sum(sum),
          .carry(carry)
      );
      apply_sign #(.WIDTH(LOW + HIGH)) sign (
          .negative(negative[i]),
          .magnitude({carry, sum}),
          .row({high[i*HIGH+:HIGH], low[i*LOW+:LOW]})
      );
    end
  endgenerate

  sum_magnitudes #(.TERMS(LANES), .WIDTH(LOW), .PAIRS(1), .HIGH(HIGH)) tree (
      .low(low),
      .high(high),
      .negative(negative),
      .total(total)
  );
endmodule
