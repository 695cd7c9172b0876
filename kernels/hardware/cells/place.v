// yosys' $fa (carry-save addition of three numbers), bit by bit, as cells of full_adder.v.

(* techmap_celltype = "$fa" *)
module place_full_adders #(
    parameter WIDTH = 1,
    parameter [WIDTH-1:0] _TECHMAP_CONSTMSK_A_ = 0,
    parameter [WIDTH-1:0] _TECHMAP_CONSTMSK_B_ = 0,
    parameter [WIDTH-1:0] _TECHMAP_CONSTMSK_C_ = 0
) (
    input [WIDTH-1:0] A,
    input [WIDTH-1:0] B,
    input [WIDTH-1:0] C,
    output [WIDTH-1:0] X,
    output [WIDTH-1:0] Y
);
  localparam [WIDTH-1:0] KNOWN = _TECHMAP_CONSTMSK_A_ | _TECHMAP_CONSTMSK_B_ | _TECHMAP_CONSTMSK_C_;

  genvar i;
  generate
    for (i = 0; i < WIDTH; i = i + 1) begin : bits
      if (KNOWN[i]) begin : gates
        assign X[i] = (A[i] & B[i]) | (C[i] & (A[i] | B[i]));
        assign Y[i] = A[i] ^ B[i] ^ C[i];
      end else begin : cell
        FULL_ADDER adder (
            .A(A[i]),
            .B(B[i]),
            .C(C[i]),
            .CARRY(X[i]),
            .SUM(Y[i])
        );
      end
    end
  endgenerate
endmodule
