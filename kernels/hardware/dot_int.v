// Integers whose scale belongs to a whole row and is applied to the finished sum: multiply and add. The
// accumulator is an integer, one row more for the tree to add.

module dot_int #(
    parameter LANES = 32,
    parameter WIDTH = 8
) (
    input [LANES*WIDTH-1:0] a,
    input [LANES*WIDTH-1:0] b,
    input [31:0] acc,
    output [31:0] result
);
  integer_lanes #(.LANES(LANES), .WIDTH(WIDTH), .ADDS(1), .OUT(32)) lanes (
      .a(a),
      .b(b),
      .addend(acc),
      .total(result)
  );
endmodule

// The exact sum of products of integers in two's complement, modulo 2^OUT.
module integer_lanes #(
    parameter LANES = 32,
    parameter WIDTH = 8,
    parameter ADDS = 0,
    parameter OUT = 2 * WIDTH + $clog2(LANES)
) (
    input [LANES*WIDTH-1:0] a,
    input [LANES*WIDTH-1:0] b,
    input [OUT-1:0] addend,
    output [OUT-1:0] total
);
  wire [LANES*(2*WIDTH-1)-1:0] sums;
  wire [LANES*WIDTH-1:0] carries;

  genvar i;
  generate
    for (i = 0; i < LANES; i = i + 1) begin : lane
      multiply_signed #(.WIDTH(WIDTH)) multiply (
          .a(a[i*WIDTH+:WIDTH]),
          .b(b[i*WIDTH+:WIDTH]),
          .sum(sums[i*(2*WIDTH-1)+:2*WIDTH-1]),
          .carry(carries[i*WIDTH+:WIDTH])
      );
    end
  endgenerate

  sum_products #(.LANES(LANES), .WIDTH(WIDTH), .ADDS(ADDS), .OUT(OUT)) tree (
      .sums(sums),
      .carries(carries),
      .addend(addend),
      .total(total)
  );
endmodule
