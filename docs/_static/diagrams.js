// Draw the diagrams with the local copy of Mermaid.
mermaid.initialize({ startOnLoad: true, securityLevel: "strict" });
