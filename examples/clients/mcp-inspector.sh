server="$AGENTD_URL/api/agent/mcp"
inspect() {
  npx @modelcontextprotocol/inspector --cli "$server" --transport http --header "Authorization: Bearer $MCP_TOKEN" "$@"
}

inspect --method tools/list
inspect --method tools/call --tool-name createTodo --tool-arg "title=Repot the basil"
